from tableferry.convert import show as show
from tableferry.convert.converting import Report as Report
from tableferry.convert.converting import TableReport as TableReport
from tableferry.convert.converting import run as run
from tableferry.convert.converting import undo as undo
from tableferry.convert.plan import Engine as Engine
from tableferry.convert.plan import Statistics as Statistics
from tableferry.convert.steps import Reader as Reader
