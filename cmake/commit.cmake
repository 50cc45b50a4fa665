# kipp_commit(target): the target gets `kipp::build_commit()` (src/cli/build_commit.h). Asked of git at
# every build, because measurements name the commit they belong to; written only when it changed.
# "unknown" outside a checkout of this project, "-changed" behind it where tracked files differ.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit unknown)
  if(EXISTS ${SOURCE}/.git)
    execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed EQUAL 0)
      set(commit ${head})
      execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
                      OUTPUT_VARIABLE changes ERROR_QUIET)
      if(changes)
        string(APPEND commit -changed)
      endif()
    endif()
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "cli/build_commit.h"

std::string_view kipp::build_commit() { return "@commit@"; }
]] @ONLY)
  return()
endif()

set(kipp_commit_script ${CMAKE_CURRENT_LIST_FILE})

function(kipp_commit target)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/build_commit.cc)
  add_custom_target(kipp_ask_commit BYPRODUCTS ${source}
                    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${source}
                            -P ${kipp_commit_script})
  target_sources(${target} PRIVATE ${source})
  add_dependencies(${target} kipp_ask_commit)
endfunction()
