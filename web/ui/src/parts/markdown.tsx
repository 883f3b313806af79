// A text as Markdown, drawn block by block: of a text that grows, only the last
// block is drawn again.

import { memo } from './memo';
import { coloursVersion } from '../text/highlight';
import { pieces, render, type Piece } from '../text/markdown';

const PieceView = memo(
  function PieceView({ piece }: { piece: Piece; colours: number }) {
    return <div class="md__block" dangerouslySetInnerHTML={{ __html: render(piece) }} />;
  },
  (a, b) => a.piece.raw === b.piece.raw && a.piece.token.type === b.piece.token.type && a.colours === b.colours,
);

export function Markdown({ text, breaks = false }: { text: string; breaks?: boolean }) {
  const colours = coloursVersion.value;
  return (
    <div class="md">
      {pieces(text, breaks).map((piece, i) => (
        <PieceView key={i} piece={piece} colours={colours} />
      ))}
    </div>
  );
}
