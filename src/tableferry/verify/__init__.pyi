from .comparing import common_rows as common_rows
from .comparing import verify as verify
from .comparing import verify_tables as verify_tables
from .measuring import Side as Side
from .rendering import render as render
from .verdict import Verdict as Verdict
