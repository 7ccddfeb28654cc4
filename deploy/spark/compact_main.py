"""The file that ``spark-submit`` starts to put small files together, as `nightly_main.py` is for the night."""

import sys

from spark_jobs import compact

if __name__ == "__main__":
    sys.exit(compact.main(sys.argv[1:]))
