# SPDX-License-Identifier: BSD-3-Clause
#
# switchml_transport out of the published client library: its sources, patched
# (patches/libswitchml/ of the channel's tree), compiled here and not by its
# Makefile, which wants DPDK's own make rules and writes the build's paths into
# the library.
set(SWITCHML_PUBLISHED_SOURCE "${CMAKE_CURRENT_SOURCE_DIR}/published" CACHE PATH
    "Patched sources of p4lang/p4app-switchML")
option(SWITCHML_VCL "Quantise with the vector class library (x86 only)" ON)

set(published "${SWITCHML_PUBLISHED_SOURCE}/dev_root/client_lib/src")
if(NOT EXISTS "${published}/context.cc")
  message(FATAL_ERROR "The ${SWITCHML_TRANSPORT} transport needs the published client library: "
          "${published}/context.cc does not exist; set SWITCHML_PUBLISHED_SOURCE")
endif()
file(STRINGS "${published}/glog_fix.h" patched REGEX "class FatalMessage")
if(NOT patched)
  message(FATAL_ERROR "${published} is not patched; apply patches/libswitchml/ first")
endif()

string(REGEX REPLACE "_.*" "" backend "${SWITCHML_TRANSPORT}")  # dpdk_mlx5 and dpdk_mlx4 differ in DPDK alone

find_package(Threads REQUIRED)
find_package(glog CONFIG REQUIRED)
find_package(Boost CONFIG REQUIRED COMPONENTS program_options)

set(backend_sources_dummy dummy_backend dummy_worker_thread)
set(backend_sources_dpdk dpdk_backend dpdk_master_thread dpdk_utils dpdk_worker_thread)
set(backend_sources_rdma rdma_backend rdma_connection rdma_endpoint rdma_timeout_queue rdma_worker_thread)
set(sources
    backend.cc config.cc context.cc job.cc prepostprocessor.cc scheduler.cc stats.cc utils.cc
    prepostprocessors/cpu_exponent_quantizer_ppp.cc schedulers/fifo_scheduler.cc)
foreach(name IN LISTS backend_sources_${backend})
  list(APPEND sources "backends/${backend}/${name}.cc")
endforeach()
list(TRANSFORM sources PREPEND "${published}/")

string(TOUPPER "${backend}" backend_define)
# All of it as the published Makefile has it, but for warnings: they are upstream's to mend.
add_library(switchml_published STATIC ${sources})
target_compile_definitions(switchml_published PUBLIC ${backend_define} TIMEOUTS GLOG_USE_GLOG_EXPORT
  PRIVATE "VERSION_INFO=\"as part of libswitchml ${PROJECT_VERSION}\"")
target_compile_options(switchml_published PRIVATE -w -O3 "-ffile-prefix-map=${SWITCHML_PUBLISHED_SOURCE}=published")
target_include_directories(switchml_published SYSTEM BEFORE PUBLIC
  "${CMAKE_CURRENT_SOURCE_DIR}/src/published"
  "${published}" "${published}/prepostprocessors" "${published}/schedulers" "${published}/backends/${backend}")
target_link_libraries(switchml_published PUBLIC glog::glog Boost::program_options Threads::Threads ${CMAKE_DL_LIBS})
set_target_properties(switchml_published PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

if(SWITCHML_VCL)
  find_path(SWITCHML_VCL_INCLUDE vectorclass.h PATH_SUFFIXES vectorclass REQUIRED DOC "The vector class library")
  target_compile_definitions(switchml_published PRIVATE VCL)
  target_include_directories(switchml_published SYSTEM PRIVATE "${SWITCHML_VCL_INCLUDE}")
endif()

if(NOT backend STREQUAL "dummy")
  target_sources(switchml_published PRIVATE src/published/grpc_client.cpp)
  target_link_libraries(switchml_published PUBLIC switchml_controller)
endif()
if(backend STREQUAL "dpdk")
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(DPDK REQUIRED libdpdk)
  target_sources(switchml_published PRIVATE src/published/dpdk_probe.cpp)
  target_compile_definitions(switchml_published PRIVATE ALLOW_EXPERIMENTAL_API)
  list(JOIN DPDK_CFLAGS_OTHER " " dpdk_cflags)
  list(JOIN DPDK_STATIC_LDFLAGS " " dpdk_ldflags)
  target_compile_options(switchml_published PRIVATE "SHELL:${dpdk_cflags}")
  target_include_directories(switchml_published SYSTEM PRIVATE ${DPDK_INCLUDE_DIRS})
  # Static: drivers register themselves, so all of them are linked in (the .pc file says --whole-archive).
  target_link_options(switchml_published PUBLIC "SHELL:${dpdk_ldflags}")
elseif(backend STREQUAL "rdma")
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(VERBS REQUIRED IMPORTED_TARGET libibverbs)
  target_link_libraries(switchml_published PUBLIC PkgConfig::VERBS)
endif()

add_library(switchml_transport STATIC
  src/published/configuration.cpp src/published/configuration_file.cpp src/published/transport.cpp
  "src/published/backend_${backend}.cpp")
target_compile_definitions(switchml_transport PRIVATE "SWITCHML_TRANSPORT_NAME=\"${SWITCHML_TRANSPORT}\"")
target_link_libraries(switchml_transport PUBLIC switchml_core PRIVATE switchml_published)
