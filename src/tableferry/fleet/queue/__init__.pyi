from . import selections as selections
from .upgrades import upgrade as upgrade
