# SPDX-License-Identifier: BSD-3-Clause
"""S3-compatible object stores: AWS, MinIO, Cloudflare R2 and others that support conditional writes."""
