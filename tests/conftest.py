"""Options and fixtures shared by all Python tests."""

import signal

# Started in the background of a script, CI has SIGINT ignored, and so would all that it starts:
# the tests of Ctrl-C need it as a terminal gives it.
signal.signal(signal.SIGINT, signal.default_int_handler)
