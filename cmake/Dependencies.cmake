# SPDX-License-Identifier: Apache-2.0
# Finds every dependency; a missing one is named together with the Debian package that has it.

find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config is missing: install the package pkg-config (or run scripts/install-dependencies)")
endif()

# hostrange_pkg(NAME MODULE PACKAGE): imported target NAME from pkg-config MODULE.
function(hostrange_pkg name module package)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET GLOBAL "${module}")
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} was not found: install the package ${package} (or run scripts/install-dependencies)")
  endif()
  add_library(hostrange::${name} ALIAS PkgConfig::${name})
endfunction()

hostrange_pkg(libbpf "libbpf>=1.3" "libbpf-dev, on Debian 12 from bookworm-backports")
hostrange_pkg(libelf libelf libelf-dev)
hostrange_pkg(libdw libdw libdw-dev)
# Its header alone: the library is loaded where it is there and asked for.
hostrange_pkg(libdebuginfod libdebuginfod libdebuginfod-dev)
hostrange_pkg(re2 re2 libre2-dev)

find_path(HOSTRANGE_LIBIBERTY_INCLUDE libiberty/demangle.h)
find_library(HOSTRANGE_LIBIBERTY iberty)
if(NOT HOSTRANGE_LIBIBERTY OR NOT HOSTRANGE_LIBIBERTY_INCLUDE)
  message(FATAL_ERROR "libiberty was not found: install the package libiberty-dev (or run scripts/install-dependencies)")
endif()
add_library(hostrange::libiberty INTERFACE IMPORTED GLOBAL)
target_include_directories(hostrange::libiberty INTERFACE ${HOSTRANGE_LIBIBERTY_INCLUDE})
target_link_libraries(hostrange::libiberty INTERFACE ${HOSTRANGE_LIBIBERTY})

macro(hostrange_find name package)
  find_package(${name} CONFIG QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} was not found: install the package ${package} (or run scripts/install-dependencies)")
  endif()
endmacro()

hostrange_find(CLI11 libcli11-dev)
hostrange_find(nlohmann_json nlohmann-json3-dev)
hostrange_find(tomlplusplus libtomlplusplus-dev)
hostrange_find(fmt libfmt-dev)
hostrange_find(zydis libzydis-dev)
if(HOSTRANGE_TESTS)
  hostrange_find(GTest libgtest-dev)
endif()

function(hostrange_program variable program package)
  find_program(${variable} ${program} PATHS /usr/sbin /sbin)
  if(NOT ${variable})
    message(FATAL_ERROR "${program} was not found: install the package ${package} (or run scripts/install-dependencies)")
  endif()
endfunction()

hostrange_program(HOSTRANGE_CLANG clang clang)
hostrange_program(HOSTRANGE_LLVM_STRIP llvm-strip llvm)
hostrange_program(HOSTRANGE_BPFTOOL bpftool bpftool)
