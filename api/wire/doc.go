// Package wire is the raw JSON that passes through the bridge: a scanner that
// visits every byte once and hands out sub-slices, the buffers they live in, and
// [Fault], the shape of the error table's rows. It decodes nothing that the
// bridge only carries.
package wire
