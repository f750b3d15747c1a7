"""The one HTTP server of everything here that answers HTTP: uvicorn's, with the limits it lacks;
and the one HTTP client of everything but commands.

The server serves Podwright's Unix socket and web port, the page, metrics, twins and hooks of Slurm.
`Visitors` also limits the connections of listeners of other kinds.
"""

from ._connection_limits import TooManyVisitors as TooManyVisitors
from ._connection_limits import Visitor as Visitor
from ._connection_limits import Visitors as Visitors
from ._host_header import host_of as host_of
from ._host_header import host_port as host_port
from ._host_header import names_this_server as names_this_server
from ._http_client import HttpAnswer as HttpAnswer
from ._http_client import NotHttp as NotHttp
from ._http_client import ask as ask
from ._http_client import open_connection as open_connection
from ._http_refusals import STATUS_BY_CODE as STATUS_BY_CODE
from ._http_refusals import complain as complain
from ._http_refusals import refusal as refusal
from ._http_refusals import refused as refused
from ._http_server import HttpServer as HttpServer
from ._http_server import listen as listen
from ._http_server import more_descriptors as more_descriptors
from ._listener_state import Handler as Handler
from ._listener_state import HttpRequest as HttpRequest
from ._listener_state import Limits as Limits
from ._listener_state import Listener as Listener
from ._listener_state import Reply as Reply
from ._metrics_front import METRICS_CONTENT_TYPE as METRICS_CONTENT_TYPE
from ._metrics_front import Figure as Figure
from ._metrics_front import MetricsFront as MetricsFront
from ._metrics_front import families as families
from ._metrics_front import metrics_text as metrics_text
