package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// maxChecked is how much of a file is checked when it is opened, in bytes. The
// tree is walked from its root, level by level, so the pages on which the most
// depends come first.
const maxChecked = 128 << 20

// What follows reads bbolt's file format (version 2, in the machine's byte order)
// without bbolt, because bbolt maps the file and trusts it: a wrong page number
// there is a fault, a cycle is an endless recursion, neither of which a program
// survives. See go.etcd.io/bbolt, internal/common.
const (
	pageHead    = 16 // id 8, flags 2, count 2, overflow 4
	pageElement = 16 // branch: position 4, key size 4, page 8; leaf: flags 4, position 4, key size 4, value size 4
	metaSize    = 64 // magic 4, version 4, page size 4, flags 4, root 8, sequence 8, freelist 8, pages 8, transaction 8, checksum 8
	bucketHead  = 16 // root 8, sequence 8

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)

	minPage, maxPage = 1 << 10, 1 << 24 // sizes, in bytes
)

var native = binary.NativeEndian

// truncatedError says that a file ends before the last page it speaks of.
type truncatedError struct{ have, want int64 } // bytes

func (e *truncatedError) Error() string {
	return fmt.Sprintf("it has %d bytes, want at least %d", e.have, e.want)
}

// boltMeta is what we need of a meta page.
type boltMeta struct {
	pageSize                    int
	root, freelist, pages, txid uint64
}

// readMeta reads the meta in a page; false if it is not valid.
func readMeta(page []byte) (m boltMeta, ok bool) {
	if len(page) < pageHead+metaSize {
		return m, false
	}
	b := page[pageHead:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8])
	if native.Uint32(b) != boltMagic || native.Uint32(b[4:]) != boltVersion || native.Uint64(b[56:]) != sum.Sum64() {
		return m, false
	}
	m = boltMeta{
		pageSize: int(native.Uint32(b[8:])),
		root:     native.Uint64(b[16:]),
		freelist: native.Uint64(b[32:]),
		pages:    native.Uint64(b[40:]),
		txid:     native.Uint64(b[48:]),
	}
	return m, m.pageSize >= minPage && m.pageSize <= maxPage
}

// currentMeta finds the valid meta page of the latest transaction.
func currentMeta(r io.ReaderAt, size int64) (boltMeta, error) {
	page := make([]byte, pageHead+metaSize)
	var best boltMeta
	found := false
	// The second page begins where the page size says: try them all.
	for at := int64(0); at <= maxPage; at = max(at*2, minPage) {
		if at+int64(len(page)) > size {
			break
		}
		if _, err := r.ReadAt(page, at); err != nil {
			return best, err
		}
		m, ok := readMeta(page)
		if ok && (at == 0 || at == int64(m.pageSize)) && (!found || m.txid > best.txid) {
			best, found = m, true
		}
	}
	switch {
	case !found && size < 2*minPage:
		return best, &truncatedError{size, 2 * minPage}
	case !found:
		return best, errors.New("neither of its two meta pages is valid")
	}
	return best, nil
}

// span is a subtree of a bucket, or of the root for an empty bucket name: the
// number of its page, and the bounds of its keys.
type span struct {
	page     uint64
	bucket   []byte
	min, max []byte // min <= key < max; nil means no bound
}

// walk is one check of a file.
type walk struct {
	r      io.ReaderAt
	meta   boltMeta
	budget int64                           // bytes still to be read
	seen   []uint64                        // one bit a page
	record func(bucket, key, value []byte) // told of every value
	next   []span                          // the level below
	buf    []byte                          // the run that was read last
}

var errBudget = errors.New("the budget is spent")

// checkPages walks the file's tree, up to budget bytes of it, and tells record of
// each value on its way, in slices that live until record returns. It finds pages
// out of range, used twice or of the wrong kind, elements outside their page and
// keys out of order.
func checkPages(r io.ReaderAt, size, budget int64, record func(bucket, key, value []byte)) error {
	meta, err := currentMeta(r, size)
	if err != nil {
		return err
	}
	have := uint64(size) / uint64(meta.pageSize) //nolint:gosec // neither is negative
	if meta.pages > have {
		want := int64(min(meta.pages, 1<<38)) * int64(meta.pageSize) //nolint:gosec // bounded
		return &truncatedError{size, want}
	}
	w := &walk{r: r, meta: meta, budget: budget, seen: make([]uint64, have/64+1), record: record}
	level := []span{{page: meta.root}}
	for len(level) > 0 && err == nil {
		// By number, so that the disk is read forwards.
		slices.SortFunc(level, func(a, b span) int {
			if a.page < b.page {
				return -1
			}
			return 1
		})
		for _, s := range level {
			if err = w.visit(s); err != nil {
				break
			}
		}
		level, w.next = w.next, nil
	}
	if err == nil || errors.Is(err, errBudget) {
		err = w.free()
	}
	return err
}

// run reads a page with its overflow, into memory that the next run takes over,
// and marks it as used.
func (w *walk) run(id uint64) ([]byte, error) {
	size := uint64(w.meta.pageSize) //nolint:gosec // positive
	if id < 2 || id >= w.meta.pages {
		return nil, fmt.Errorf("page %d is out of range", id)
	}
	if w.budget -= int64(size); w.budget < 0 { //nolint:gosec // at most maxPage
		return nil, errBudget
	}
	w.buf = slices.Grow(w.buf[:0], int(size))[:size] //nolint:gosec // at most maxPage
	page := w.buf
	if _, err := w.r.ReadAt(page, int64(id*size)); err != nil { //nolint:gosec // within the file
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	if got := native.Uint64(page); got != id {
		return nil, fmt.Errorf("page %d calls itself %d", id, got)
	}
	overflow := uint64(native.Uint32(page[12:]))
	if overflow >= w.meta.pages-id {
		return nil, fmt.Errorf("page %d runs over the end", id)
	}
	for p := id; p <= id+overflow; p++ {
		if err := w.mark(p); err != nil {
			return nil, err
		}
	}
	if overflow == 0 {
		return page, nil
	}
	if w.budget -= int64(overflow * size); w.budget < 0 { //nolint:gosec // within the file
		return nil, errBudget
	}
	w.buf = append(page, make([]byte, overflow*size)...)
	page = w.buf
	if _, err := w.r.ReadAt(page[size:], int64((id+1)*size)); err != nil { //nolint:gosec // within the file
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return page, nil
}

func (w *walk) mark(id uint64) error {
	word, bit := &w.seen[id/64], uint64(1)<<(id%64)
	if *word&bit != 0 {
		return fmt.Errorf("page %d is used twice", id)
	}
	*word |= bit
	return nil
}

// visit checks one page of a tree and puts its children into w.next.
func (w *walk) visit(s span) error {
	page, err := w.run(s.page)
	if err != nil {
		return err
	}
	if err := w.elements(page, s); err != nil {
		return fmt.Errorf("page %d: %w", s.page, err)
	}
	return nil
}

// elements checks what is on a page: one of the file's, or an inline bucket's.
func (w *walk) elements(page []byte, s span) error {
	if len(page) < pageHead {
		return errors.New("the page is cut short")
	}
	flags, count := native.Uint16(page[8:]), int(native.Uint16(page[10:]))
	if flags != leafPage && flags != branchPage {
		return fmt.Errorf("a page of kind %#x in a tree", flags)
	}
	if pageHead+count*pageElement > len(page) {
		return fmt.Errorf("%d elements do not fit", count)
	}
	if flags == branchPage && count == 0 {
		return errors.New("a branch without children")
	}
	last := s.min
	for i := range count {
		at := pageHead + i*pageElement
		e := page[at : at+pageElement]
		var kind, pos, ksize, vsize uint32
		if flags == leafPage {
			kind, pos, ksize, vsize = native.Uint32(e), native.Uint32(e[4:]), native.Uint32(e[8:]), native.Uint32(e[12:])
		} else {
			pos, ksize = native.Uint32(e), native.Uint32(e[4:])
		}
		from := uint64(at) + uint64(pos) //nolint:gosec // positive
		if ksize == 0 || from+uint64(ksize)+uint64(vsize) > uint64(len(page)) {
			return fmt.Errorf("element %d lies outside", i)
		}
		key := page[from : from+uint64(ksize)]
		value := page[from+uint64(ksize):][:vsize]
		if order := bytes.Compare(last, key); order > 0 || order == 0 && i > 0 || s.max != nil && bytes.Compare(key, s.max) >= 0 {
			return fmt.Errorf("the key of element %d is out of order", i)
		}
		last = key
		switch {
		case flags == branchPage:
			child := span{page: native.Uint64(e[8:]), bucket: s.bucket, min: bytes.Clone(key), max: s.max}
			if i > 0 {
				w.next[len(w.next)-1].max = child.min
			}
			w.next = append(w.next, child)
		case kind&bucketFlag == 0:
			w.record(s.bucket, key, value)
		default:
			if err := w.bucket(s.bucket, key, value); err != nil {
				return fmt.Errorf("bucket %.80q: %w", key, err)
			}
		}
	}
	return nil
}

// bucket follows a bucket to its tree, or checks it where it is if it is inline.
// A store's buckets hold no buckets: that also bounds the recursion.
func (w *walk) bucket(in, name, value []byte) error {
	if in != nil {
		return errors.New("it lies in a bucket")
	}
	if len(value) < bucketHead {
		return errors.New("its header is cut short")
	}
	s := span{page: native.Uint64(value), bucket: bytes.Clone(name)}
	if s.page != 0 {
		w.next = append(w.next, s)
		return nil
	}
	inline := value[bucketHead:]
	if len(inline) >= pageHead && native.Uint16(inline[8:]) != leafPage {
		return errors.New("its inline page is no leaf")
	}
	return w.elements(inline, s)
}

// free checks the list of free pages: a page both free and used would be
// overwritten.
func (w *walk) free() error {
	if w.meta.freelist == noFreelist {
		return nil
	}
	w.budget = int64(w.meta.pages) * int64(w.meta.pageSize) //nolint:gosec // the file's size: the list must be read whole
	page, err := w.run(w.meta.freelist)
	if err != nil {
		return err
	}
	if flags := native.Uint16(page[8:]); flags != freelistPage {
		return fmt.Errorf("page %d: a page of kind %#x for the free list", w.meta.freelist, flags)
	}
	ids, count := page[pageHead:], uint64(native.Uint16(page[10:]))
	if count == 0xFFFF { // the count is too large for its field: it is the first entry
		count, ids = native.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return fmt.Errorf("page %d: %d free pages do not fit", w.meta.freelist, count)
	}
	for i := range count {
		id := native.Uint64(ids[i*8:])
		if id < 2 || id >= w.meta.pages {
			return fmt.Errorf("the free page %d is out of range", id)
		}
		if err := w.mark(id); err != nil {
			return err
		}
	}
	return nil
}
