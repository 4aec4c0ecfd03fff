# Runs browser tests outside the source tree: copies them to WORK, installs what they lock when that changed, runs them.
#
#   cmake -DSOURCE=<tests/web> -DWORK=<folder> -DNPM=<npm> -DNODE=<node> -DTESTS=<a.mjs;b.mjs> -P run.cmake
#
# The tests' own variables (KVIST_WEB_DIST, KVIST_URL, KVIST_SCREENSHOTS, KVIST_CHROMIUM) come from the environment.

cmake_minimum_required(VERSION 3.25)

file(GLOB files "${SOURCE}/*.mjs" "${SOURCE}/package.json" "${SOURCE}/package-lock.json" "${SOURCE}/.npmrc")
file(COPY ${files} DESTINATION "${WORK}")

file(SHA256 "${SOURCE}/package-lock.json" wanted)
set(installed "")
if(EXISTS "${WORK}/installed")
  file(READ "${WORK}/installed" installed)
endif()
if(NOT installed STREQUAL wanted)
  execute_process(COMMAND "${NPM}" ci --ignore-scripts WORKING_DIRECTORY "${WORK}" COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE "${WORK}/installed" "${wanted}")
endif()

# File by file: Node would run several at once, each with a browser of its own.
set(failed "")
foreach(test IN LISTS TESTS)
  execute_process(COMMAND "${NODE}" --test "${test}" WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(APPEND failed "${test}")
  endif()
endforeach()
if(failed)
  message(FATAL_ERROR "browser tests failed: ${failed}")
endif()
