"""From a program to priced steps: rules, layouts, fusion, placement over IPUs, branches taken."""

from ipu_model.pricing.price import Priced, price

__all__ = ["Priced", "price"]
