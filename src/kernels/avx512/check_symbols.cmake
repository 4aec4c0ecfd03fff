# Fails when an object compiled with AVX-512 or AMX defines a symbol outside its own namespace. Such a symbol, e.g. an inline function
# of a shared header, could be the copy that the linker keeps for everybody, and crash machines without AVX-512.
#
#   cmake -DNM=nm -DOBJECTS=a.o,b.o -P check_symbols.cmake
string(REPLACE "," ";" objects "${OBJECTS}")
list(LENGTH objects count)
if(count EQUAL 0)
  message(FATAL_ERROR "no objects to check")
endif()
foreach(object ${objects})
  execute_process(COMMAND "${NM}" -C --defined-only "${object}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${output}")
  foreach(line ${lines})
    # Lower case letters are local, but w, v and u; DW.ref and __odr_asan are data that compilers add.
    if(line MATCHES " [A-Zwvu] " AND NOT line MATCHES " kvist::kernels::(avx512|amx)::| DW\\.ref\\.| __odr_asan")
      message(SEND_ERROR "${object} defines a symbol that others could link to: ${line}")
    endif()
  endforeach()
endforeach()
