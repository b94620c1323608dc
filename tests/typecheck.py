"""The type checker that the import hook applies to all of solera: an int is a float."""

from beartype import BeartypeConf, beartype

checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
