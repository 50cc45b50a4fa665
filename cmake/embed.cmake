# kipp_embed(target symbol file): puts a file's bytes into the target as `symbol` .. `symbol`_end, read-only.
function(kipp_embed target symbol file)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(stub ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S)
  file(CONFIGURE OUTPUT ${stub} CONTENT [[
    .section .rodata
    .global @symbol@
    .global @symbol@_end
    .balign 64
@symbol@:
    .incbin "@source@"
@symbol@_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
]] @ONLY)
  set_source_files_properties(${stub} PROPERTIES OBJECT_DEPENDS ${source})
  target_sources(${target} PRIVATE ${stub})
endfunction()
