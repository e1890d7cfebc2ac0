import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
about = json.loads(session.get_modelmeta().custom_metadata_map["cfcl"])
channels, height, width = about["image_shape"]
pictures = [Image.open(path).convert("L" if channels == 1 else "RGB") for path in sys.argv[2:]]
resized = [picture.resize((width, height), Image.Resampling.BILINEAR) for picture in pictures]
pixels = np.stack([np.asarray(picture).reshape(height, width, channels) for picture in resized])
(vectors,) = session.run(None, {"images": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
np.save("vectors.npy", vectors)
