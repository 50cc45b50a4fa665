# What every target of ours compiles with. -ffp-contract=off: a fused multiply-add would make the reference's
# sums depend on the compiler.
set(KIPP_WARNINGS -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor -Werror
    -ffp-contract=off)
add_library(kipp_warnings INTERFACE)
target_compile_options(kipp_warnings INTERFACE ${KIPP_WARNINGS})
