# SPDX-License-Identifier: BSD-3-Clause
"""The store of an S3-like object store: AWS, MinIO, Cloudflare R2 and others that write on condition."""
