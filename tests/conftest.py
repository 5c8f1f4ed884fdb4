"""Options and fixtures shared by all Python tests."""

import signal

# A shell starts background scripts, such as CI, with SIGINT ignored, and their children inherit
# that. The tests of Ctrl-C need the default handler.
signal.signal(signal.SIGINT, signal.default_int_handler)
