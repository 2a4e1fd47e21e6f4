// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace switchml::softswitch {

// Tells the service manager that started the switch, if it wants to know (systemd's Type=notify, see sd_notify(3)):
// one datagram to the socket that NOTIFY_SOCKET names. What goes wrong is said on standard error.
void notify_service_manager(const std::string &state);

}  // namespace switchml::softswitch
