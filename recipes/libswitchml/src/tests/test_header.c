/* SPDX-License-Identifier: BSD-3-Clause
 * switchml.h is C: this compiles as strict C99 and links against nothing but the C ABI. */
#include <stdio.h>
#include <string.h>

#include "switchml.h"

int main(void) {
    switchml_config config;
    switchml_context *context = NULL;
    memset(&config, 0, sizeof config);
    if (switchml_abi_version() != SWITCHML_ABI_VERSION) return 1;
    if (switchml_open(&config, &context) != SWITCHML_EINVAL || context != NULL) return 2;
    if (strstr(switchml_last_error(), "struct_size") == NULL) return 3;
    printf("%s %u %s\n", switchml_version(), (unsigned)switchml_abi_version(), switchml_transport());
    return 0;
}
