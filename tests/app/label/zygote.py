"""A process that has imported everything and forks a `graphuq label` for each line it reads: no test waits for imports.

The children are processes like any other, to be killed at will; nothing has been computed before they are forked.
"""

import json
import os
import sys
import warnings


def main():
    import uvicorn  # noqa: F401

    from graphuq.app import cli
    from graphuq.app.label import exchange, run, server  # noqa: F401

    warnings.simplefilter("ignore")  # JAX does not like forks, but has no threads yet
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            warnings.resetwarnings()
            for number, path, flags in (
                (0, os.devnull, os.O_RDONLY),
                (1, os.devnull, os.O_WRONLY),
                (2, asked["log"], os.O_WRONLY),
            ):
                os.dup2(os.open(path, flags), number)
            sys.argv = ["graphuq", *asked["words"]]
            cli.main()
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
