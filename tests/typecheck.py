"""The type checker that jaxtyping's import hook applies to the package in every test."""

from beartype import BeartypeConf, beartype

# an int is a float, as for every static checker
typecheck = beartype(conf=BeartypeConf(is_pep484_tower=True))
