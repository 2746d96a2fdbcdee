# -Wno-maybe-uninitialized: GCC 12 warns of its own avx512fintrin.h (its bug 105593).
# A file's name says which instructions it may use; it is entered only behind base/cpu_features.h.
function(lathe_set_isa_flags)
  foreach(file ${ARGN})
    if(file MATCHES "_avx512\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mavx512vnni;-mprefer-vector-width=512;-Wno-uninitialized;-Wno-maybe-uninitialized")
    elseif(file MATCHES "_avx2\\.cc$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    endif()
  endforeach()
endfunction()
