"""Read and change ext2, ext3 and ext4 images without mounting them.

>>> import dentree
>>> with dentree.Image("disk.img") as image:          # doctest: +SKIP
...     print((image.path("/etc") / "hostname").read_text())
"""

from ._dentree import File, __version__
from ._path import Image, ImagePath

__all__ = ["File", "Image", "ImagePath", "__version__"]
