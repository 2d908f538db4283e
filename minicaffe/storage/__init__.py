"""Files: atomic writes, the cache folder, and safe readers of the containers that others build on."""
