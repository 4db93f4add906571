"""Nested dictionaries of NumPy arrays, texts included, that share their first dimensions."""

from ludus.text.nested.array_dict import NestedArrayDict as NestedArrayDict
from ludus.text.nested.leaves import TEXT as TEXT, NestedError as NestedError
