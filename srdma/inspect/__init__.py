"""Tools that inspect packets: captures, dissection, RoCE v2 frames."""
