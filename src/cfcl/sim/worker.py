"""`python -m cfcl.sim.worker`: one process of a simulation; takes its orders as a line of JSON on standard input."""

import json
import sys

from cfcl.sim.crew import serve

if __name__ == "__main__":
    serve(json.loads(sys.stdin.readline()))
