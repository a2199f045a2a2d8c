// The order in which blocks take the tiles of C.
#pragma once

struct TileIndex {
    int row, col;
};

// Tile `index` when tiles are taken down columns within bands of `band` tile rows. Blocks that run at the same time then form a compact
// rectangle rather than a long strip, so that they share rows of A and columns of B in the L2.
__device__ __forceinline__ TileIndex banded_tile(int index, int tile_rows, int tile_cols, int band) {
    const int first_row = index / (band * tile_cols) * band;
    const int within = index % (band * tile_cols);
    const int height = min(band, tile_rows - first_row);  // the last band may be lower
    return {first_row + within % height, within / height};
}
