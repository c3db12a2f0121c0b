"""Sizes that depend on data, inside a compiled program.

A compiled program needs fixed shapes. The result of a NonZero therefore gets its largest possible size: it is padded.
Each padded value carries a mask of its valid entries; operators behind it give the result of the valid entries alone.

- `padded.py`: operators that make padded values. `bounds.py`: sizes that the user gives instead.
- `axes.py`: which axis of an operator's result is the padded one.
- `pieces.py`: a padded axis that is joined with others or sliced.
- `neutral.py`: reductions and the like, where padding takes the value that changes nothing.
- `size_dependent.py`: numbers computed from the size of a padded value.
- `known_length.py`: slices and ranges whose start alone depends on data; they need no padding.
- `routed.py`: the entry point; asks the others, one node at a time.
"""
