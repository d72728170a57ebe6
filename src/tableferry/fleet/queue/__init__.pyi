from . import selections as selections
from .migrating import upgrade as upgrade
