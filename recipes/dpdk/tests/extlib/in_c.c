/* SPDX-License-Identifier: BSD-3-Clause */
#include <rte_lcore.h>

unsigned int cores_in_c(void);

unsigned int cores_in_c(void) { return rte_lcore_count(); }
