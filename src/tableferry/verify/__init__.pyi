from tableferry.verify.comparing import common_rows as common_rows
from tableferry.verify.comparing import verify as verify
from tableferry.verify.comparing import verify_tables as verify_tables
from tableferry.verify.measuring import Side as Side
from tableferry.verify.rendering import render as render
from tableferry.verify.verdict import Verdict as Verdict
