package schemas

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAManifestOfAnAdapterKeepsWhatItIsAddedTo(t *testing.T) {
	m := sampleManifest()
	m.Adapter = &Adapter{Rank: 16, Alpha: 32, Frozen: []Shard{
		{Hash: m.ConfigHash, FullHash: m.ConfigHash, Size: 5, Encoding: EncodingSafetensors},
		{Hash: m.TokenizerHash, FullHash: m.TokenizerHash, Size: 6, Encoding: EncodingSafetensors},
	}}
	require.NoError(t, m.Validate())
	data, err := Marshal(m)
	require.NoError(t, err)
	read := &Manifest{}
	require.NoError(t, Unmarshal(data, read))
	require.Equal(t, m, read)
	require.Equal(t, append(m.Shards[:2:2], m.Adapter.Frozen...), read.AllShards())

	plain, err := Marshal(sampleManifest())
	require.NoError(t, err)
	require.NoError(t, Unmarshal(plain, read)) // into the same manifest
	require.Equal(t, sampleManifest(), read)
	require.Equal(t, read.Shards, read.AllShards())

	for _, broken := range [][]byte{data[:len(data)-3], append(slices.Clip(data), 0)} {
		require.ErrorIs(t, Unmarshal(broken, &Manifest{}), ErrMalformed)
	}
}
