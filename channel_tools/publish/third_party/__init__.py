# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to third-party servers: Artifactory, Anaconda, prefix.dev, quetz, Cloudsmith."""
