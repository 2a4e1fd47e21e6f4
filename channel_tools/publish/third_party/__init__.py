# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to the servers of others: Artifactory, Anaconda, prefix.dev, quetz, Cloudsmith."""
