"""From texts to vectors: tokenizers, models, and the process that runs them."""

import os

# Some builds of onnxruntime report to their maker how they are used, and keep a number of the
# machine's in the user's home. This is read when the library is loaded, which only happens below.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
