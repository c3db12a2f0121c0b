"""Side-by-side measurements: ratios, medians, interleaved in one process."""

import os

# peers' idle threads must not spin while another engine is timed; read when the libraries are loaded
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")
