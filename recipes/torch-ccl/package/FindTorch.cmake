# SPDX-License-Identifier: BSD-3-Clause
# The PyTorch in $TORCH_ROOT, for code that runs on processors alone.
#
# PyTorch's own TorchConfig.cmake asks for CUDA's toolkit wherever PyTorch was built with CUDA, whatever is built
# against it. Sets TORCH_CXX_FLAGS and the imported target torch, as that does.
set(_torch_lib_places "$ENV{TORCH_ROOT}/lib" "$ENV{PREFIX}/lib")
foreach(_name torch torch_cpu c10)
  find_library(TORCH_${_name}_LIBRARY ${_name} PATHS ${_torch_lib_places} NO_DEFAULT_PATH REQUIRED)
endforeach()
find_path(TORCH_INCLUDE_DIR torch/all.h
          PATHS "$ENV{TORCH_ROOT}/include/torch/csrc/api/include" "$ENV{PREFIX}/include/torch/csrc/api/include"
          NO_DEFAULT_PATH REQUIRED)
get_filename_component(_torch_include "${TORCH_INCLUDE_DIR}/../../../.." ABSOLUTE)

add_library(torch SHARED IMPORTED)
set_target_properties(torch PROPERTIES
  IMPORTED_LOCATION "${TORCH_torch_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${_torch_include};${TORCH_INCLUDE_DIR}"
  INTERFACE_LINK_LIBRARIES "${TORCH_torch_cpu_LIBRARY};${TORCH_c10_LIBRARY}")
set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=$ENV{TORCH_CXX11_ABI}")
set(Torch_FOUND TRUE)
