package table

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// leafDecoder reads the values of a leaf column as JSON's: numbers, texts, truth values. A date and a time are texts.
func leafDecoder(t parquet.Type) func(parquet.Value) (any, error) {
	var logical format.LogicalTypeValue
	if l := t.LogicalType(); l != nil {
		logical = l.Value
	}
	return func(v parquet.Value) (any, error) {
		if v.IsNull() {
			return nil, nil
		}
		switch v.Kind() {
		case parquet.Boolean:
			return v.Boolean(), nil
		case parquet.Int32:
			return decodeInteger(logical, int64(v.Int32()), uint64(uint32(v.Int32()))), nil
		case parquet.Int64:
			return decodeInteger(logical, v.Int64(), uint64(v.Int64())), nil
		case parquet.Float:
			return decodeFloat(float64(v.Float()), 32), nil
		case parquet.Double:
			return decodeFloat(v.Double(), 64), nil
		case parquet.ByteArray, parquet.FixedLenByteArray:
			return decodeText(logical, v.ByteArray()), nil
		}
		return v.String(), nil
	}
}

// decodeInteger is a number, or the date or time that it counts.
func decodeInteger(logical format.LogicalTypeValue, signed int64, unsigned uint64) any {
	switch l := logical.(type) {
	case *format.IntType:
		if !l.IsSigned {
			return json.Number(strconv.FormatUint(unsigned, 10))
		}
	case *format.DateType:
		return time.Unix(0, 0).UTC().AddDate(0, 0, int(signed)).Format(time.DateOnly)
	case *format.TimestampType:
		switch l.Unit.Value.(type) {
		case *format.MilliSeconds:
			return time.UnixMilli(signed).UTC().Format(time.RFC3339Nano)
		case *format.MicroSeconds:
			return time.UnixMicro(signed).UTC().Format(time.RFC3339Nano)
		}
		return time.Unix(0, signed).UTC().Format(time.RFC3339Nano)
	case *format.DecimalType:
		return decodeDecimal(big.NewInt(signed), l.Scale)
	}
	return json.Number(strconv.FormatInt(signed, 10))
}

// decodeDecimal is an unscaled number over a power of ten.
func decodeDecimal(unscaled *big.Int, scale int32) json.Number {
	const most = 64 // digits behind the point: the format has 38
	if scale <= 0 || scale > most {
		return json.Number(unscaled.String())
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
	return json.Number(new(big.Rat).SetFrac(unscaled, power).FloatString(int(scale)))
}

// decodeFloat is a number. A missing number, which pandas writes as NaN, is null.
func decodeFloat(x float64, bits int) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return json.Number(strconv.FormatFloat(x, 'g', -1, bits))
}

// decodeText is a text. Bytes that are no UTF-8, such as those of an image, stay bytes.
func decodeText(logical format.LogicalTypeValue, data []byte) any {
	if l, ok := logical.(*format.DecimalType); ok && len(data) <= 16 {
		x := new(big.Int).SetBytes(data)
		if len(data) > 0 && data[0] >= 0x80 { // two's complement
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
		}
		return decodeDecimal(x, l.Scale)
	}
	if utf8.Valid(data) {
		return string(data)
	}
	return append([]byte(nil), data...)
}
