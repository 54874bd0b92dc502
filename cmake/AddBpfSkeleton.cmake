# SPDX-License-Identifier: Apache-2.0

# add_bpf_skeleton(NAME SOURCE HEADERS...)
# Compiles SOURCE with clang to a CO-RE object and makes NAME, an interface library whose include folder holds
# NAME.skel.h. HEADERS are what the source includes.
function(add_bpf_skeleton name source)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.bpf.o)
  set(skeleton ${CMAKE_CURRENT_BINARY_DIR}/${name}.skel.h)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  string(REGEX REPLACE "^(x86_64|amd64|AMD64)$" "x86" arch ${CMAKE_SYSTEM_PROCESSOR})
  string(REGEX REPLACE "^(aarch64)$" "arm64" arch ${arch})
  # clang's BPF target does not know where the distribution keeps asm/types.h.
  set(multiarch "")
  if(CMAKE_LIBRARY_ARCHITECTURE)
    set(multiarch -idirafter /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()
  add_custom_command(
    OUTPUT ${skeleton}
    COMMAND ${HOSTRANGE_CLANG} -g -O2 -std=gnu11 -target bpf -mcpu=v3 -D__TARGET_ARCH_${arch} -Wall -Wextra -Wno-unused-parameter -Werror
            -I${PROJECT_SOURCE_DIR} ${multiarch} -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    COMMAND ${HOSTRANGE_LLVM_STRIP} -g ${object}
    COMMAND ${HOSTRANGE_BPFTOOL} gen skeleton ${object} name ${name} > ${skeleton}
    DEPENDS ${source} ${ARGN}
    COMMENT "BPF ${name}"
    VERBATIM)
  add_custom_target(${name}_generate DEPENDS ${skeleton})
  add_library(${name} INTERFACE)
  add_dependencies(${name} ${name}_generate)
  target_include_directories(${name} INTERFACE ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
