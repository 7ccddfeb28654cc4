"""The file that ``spark-submit`` starts: it cannot start a module. The jobs come with ``--py-files spark_jobs.zip``."""

import sys

from spark_jobs import nightly

if __name__ == "__main__":
    sys.exit(nightly.main(sys.argv[1:]))
