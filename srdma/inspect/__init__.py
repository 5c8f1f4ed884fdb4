"""Tools that look at packets: captures, dissection, RoCE v2 frames."""
