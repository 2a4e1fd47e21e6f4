/* SPDX-License-Identifier: BSD-3-Clause
 * What a user's program sees of the package: version, ABI version, transport.
 */
#include <stdio.h>
#include <switchml.h>

int main(void) {
  if (switchml_abi_version() != SWITCHML_ABI_VERSION)
    return 1;
  printf("%s %u %s\n", switchml_version(), (unsigned)switchml_abi_version(),
         switchml_transport());
  return 0;
}
