# SPDX-License-Identifier: BSD-3-Clause
#
# The library's dynamic symbols are exactly the functions that switchml.h declares.
file(STRINGS "${HEADER}" declared REGEX "^SWITCHML_API ")
list(TRANSFORM declared REPLACE "^.*(switchml_[a-z_]+)\\(.*$" "\\1")
list(SORT declared)

execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [TDBRVWuGSCi] [^\n@]+" found "${listing}")
list(TRANSFORM found REPLACE "^ . " "")
list(SORT found)

if(NOT declared STREQUAL found)
  message(FATAL_ERROR "switchml.h declares: ${declared}\n${LIBRARY} shows: ${found}")
endif()
