# The names of this package and the modules they come from; __init__.py reads this file.

from .interpreter import Settings as Settings
from .interpreter import evaluate as evaluate
