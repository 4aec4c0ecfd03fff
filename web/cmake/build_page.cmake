# Builds the chat page outside the source tree, which may be read-only.
#
#   cmake -DSOURCE=<web/> -DWORK=<folder> -DFILES=<a;b;...> -DNPM=<npm> -DSTEP=<install|build> -P build_page.cmake
#
# install: copies the package files to WORK and installs what they lock.  build: copies the sources there and runs Vite.

cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command} failed (${result}) in ${WORK}:\n${output}\n"
                        "To build without the chat page, configure with -DKVIST_WEB=OFF.")
  endif()
endfunction()

if(STEP STREQUAL "install")
  file(MAKE_DIRECTORY "${WORK}")
  file(COPY "${SOURCE}/package.json" "${SOURCE}/package-lock.json" "${SOURCE}/.npmrc" DESTINATION "${WORK}")
  # No package that the page needs has to run anything when it is installed.
  run("${NPM}" ci --ignore-scripts)
else()
  file(REMOVE_RECURSE "${WORK}/src" "${WORK}/public" "${WORK}/dist")
  foreach(file IN LISTS FILES)
    get_filename_component(folder "${file}" DIRECTORY)
    file(COPY "${SOURCE}/${file}" DESTINATION "${WORK}/${folder}")
  endforeach()
  run("${NPM}" run --silent build)
endif()
