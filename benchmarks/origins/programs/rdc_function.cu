__device__ float from_elsewhere(float v, int rounds) {
    for (int k = 0; k < rounds; ++k) v = v * 1.01f + rsqrtf(v + 1.f);
    return v;
}
