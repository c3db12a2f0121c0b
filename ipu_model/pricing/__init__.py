"""Pricing: the steps of a program get costs by rules, layouts, fusion, placement over IPUs and the branches taken."""

from ipu_model.pricing.price import Priced, price

__all__ = ["Priced", "price"]
