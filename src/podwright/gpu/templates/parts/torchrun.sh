# torchrun ends with 1, whatever its ranks ended with: this ends as the one that failed first.
ranks='
import sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main
try:
    main()
except ChildFailedError as error:
    print(error, file=sys.stderr)
    code = error.get_first_failure()[1].exitcode
    sys.exit(code if code > 0 else 128 - code)
'
